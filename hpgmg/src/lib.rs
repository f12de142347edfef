//! HPGMG-FV: the finite-volume geometric multigrid benchmark.
