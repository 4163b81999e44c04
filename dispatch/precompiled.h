// Headers of torch that nearly every file reads, to be compiled once: setup.py has g++ begin each
// file with them. A file still includes what it uses: without this one, all compile as well.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
