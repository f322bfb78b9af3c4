"""The verbs as functions: predict, simulate, emulate, run; and the run folder that they write.

This room joins a scenario, its plan and the Rust core. It knows neither the command line nor HTML.
"""
