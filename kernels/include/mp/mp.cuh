// The device API in one include.
#pragma once

#include "group.cuh"
#include "layout.cuh"
#include "platform.cuh"
#include "report.cuh"
#include "signal.cuh"
