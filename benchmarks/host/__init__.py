"""Host coefficients of recorded front ends beside assumed ones, and what coarser sources know."""
