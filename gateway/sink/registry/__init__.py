"""The schema registry: schemas in, ids out, by Confluent's API and what Apicurio adds to it."""
