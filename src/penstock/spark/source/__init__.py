"""The source reads topics into Spark, as batches and as streams."""
