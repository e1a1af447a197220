"""Measures Penstock beside other systems: Apache Kafka, Redis Streams, NATS JetStream, RabbitMQ streams."""
