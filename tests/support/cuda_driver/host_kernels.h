#pragma once

#include <string>

struct Launch {
    unsigned grid[3];
    unsigned block[3];
    std::string packed;  // the arguments, each at a multiple of its size
};

struct Kernel {
    size_t packed_size;
    void (*run)(const Launch&);
};

const Kernel* find_kernel(const std::string& name);
