// The device API in one include.
#pragma once

#include "atomic.cuh"
#include "cluster.cuh"
#include "collective.cuh"
#include "copy.cuh"
#include "exchange.cuh"
#include "group.cuh"
#include "layout.cuh"
#include "meeting.cuh"
#include "message.cuh"
#include "packet.cuh"
#include "platform.cuh"
#include "report.cuh"
#include "roles.cuh"
#include "signal.cuh"
#include "window.cuh"
