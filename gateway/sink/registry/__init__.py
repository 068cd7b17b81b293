"""Schema registry: registration of schemas by Confluent's API, with Apicurio's additions."""
