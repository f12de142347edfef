//! Streams and their memory operations, memory, and peer memory, on CUDA devices and on the host.

pub mod mlx5;
