"""Compiles, ahead of the tests, what they would compile when they first need it."""

from tests.support.cuda_driver.build import driver_library, pycuda_folder

driver_library()
pycuda_folder()
