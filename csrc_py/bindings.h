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

// From now on a thread other than this one that gave up the GIL for a wait never comes back.
// Python would end it by unwinding its stack, through functions that let nothing pass.
void park_other_threads();

}  // namespace torch_shark
