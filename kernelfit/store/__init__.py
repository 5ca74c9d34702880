"""The trace store: explicit Parquet schemas, atomic writes, scans, and ingestion."""
