"""The client: connections to brokers, routing by metadata, administration, plain produce and fetch, on asyncio."""
