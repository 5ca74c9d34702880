"""Recording complete step logs from an unmodified vLLM; standard library only."""
