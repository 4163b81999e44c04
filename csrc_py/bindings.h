#pragma once

#include <pybind11/pybind11.h>

namespace torch_shark {

// One per room; module.cpp only calls them.
void init_benchmark(pybind11::module_& m);
void init_device(pybind11::module_& m);
void init_metrics(pybind11::module_& m);
void init_operators(pybind11::module_& m);
void init_planner(pybind11::module_& m);

// Makes the core give up the GIL around its waits.
void install_gil_hooks();

}  // namespace torch_shark
