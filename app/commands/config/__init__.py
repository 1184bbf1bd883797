"""``ringfence config``: the schema, the effective configuration, and its check without a broker."""
