//! The doctor `mp-info` and the local launcher `mprun`.
