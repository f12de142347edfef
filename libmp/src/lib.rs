//! Messages, puts and signals that the host, a stream or a kernel starts and completes.
