"""The nightly Spark job: proves from Kafka alone that what came in and what went out agree, or names what does not.

It shares ``conf`` with the rest of Ringfence and no other code: a checker must not inherit the bugs of the checked.
"""
