
static inline int shmem_sync(shmem_team_t team) { return shmem_team_sync(team); }
static inline int shmem_sum_reduce(shmem_team_t team, std::complex<float> *dest, const std::complex<float> *source, size_t nreduce) {
    return shmem_complexf_sum_reduce(team, (shmem_complexf *)dest, (const shmem_complexf *)source, nreduce);
}
static inline int shmem_sum_reduce(shmem_team_t team, std::complex<double> *dest, const std::complex<double> *source, size_t nreduce) {
    return shmem_complexd_sum_reduce(team, (shmem_complexd *)dest, (const shmem_complexd *)source, nreduce);
}
static inline int shmem_prod_reduce(shmem_team_t team, std::complex<float> *dest, const std::complex<float> *source, size_t nreduce) {
    return shmem_complexf_prod_reduce(team, (shmem_complexf *)dest, (const shmem_complexf *)source, nreduce);
}
static inline int shmem_prod_reduce(shmem_team_t team, std::complex<double> *dest, const std::complex<double> *source, size_t nreduce) {
    return shmem_complexd_prod_reduce(team, (shmem_complexd *)dest, (const shmem_complexd *)source, nreduce);
}
