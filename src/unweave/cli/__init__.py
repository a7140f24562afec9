"""The command line: one module for each verb. They parse and print; the library does the work.

Nothing slow is imported before it is needed, so that help and errors are immediate.
"""
