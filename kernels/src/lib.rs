//! The device headers `mp/*.cuh` and the GPU code compiled from them.
