"""The rules of lanes: what each worker must agree on."""
