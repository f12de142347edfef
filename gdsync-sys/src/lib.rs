//! Raw bindings to `<infiniband/verbs.h>` and `<infiniband/mlx5dv.h>`, loaded at run time and never linked.
