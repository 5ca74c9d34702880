"""From stored steps to a calibration: gates, design, solve, verdicts, uncertainty."""
