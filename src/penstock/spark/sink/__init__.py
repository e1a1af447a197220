"""The sink writes rows of Spark to topics."""
