"""The process of Spark whose forks are its workers: it imports once what each would import."""

from importlib import import_module

from pyspark.daemon import manager

if __name__ == "__main__":
    import_module("fairconstrained.estimators")
    manager()
