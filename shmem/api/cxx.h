
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
static inline void shmem_signal_set(shmem_ctx_t ctx, uint64_t *sig_addr, uint64_t signal, int pe) {
    shmem_ctx_signal_set(ctx, sig_addr, signal, pe);
}
static inline void shmem_signal_add(shmem_ctx_t ctx, uint64_t *sig_addr, uint64_t signal, int pe) {
    shmem_ctx_signal_add(ctx, sig_addr, signal, pe);
}
static inline int shmem_sum_inscan(shmem_team_t team, std::complex<float> *dest, const std::complex<float> *source, size_t nelems) {
    return shmem_complexf_sum_inscan(team, (shmem_complexf *)dest, (const shmem_complexf *)source, nelems);
}
static inline int shmem_sum_inscan(shmem_team_t team, std::complex<double> *dest, const std::complex<double> *source, size_t nelems) {
    return shmem_complexd_sum_inscan(team, (shmem_complexd *)dest, (const shmem_complexd *)source, nelems);
}
static inline int shmem_sum_exscan(shmem_team_t team, std::complex<float> *dest, const std::complex<float> *source, size_t nelems) {
    return shmem_complexf_sum_exscan(team, (shmem_complexf *)dest, (const shmem_complexf *)source, nelems);
}
static inline int shmem_sum_exscan(shmem_team_t team, std::complex<double> *dest, const std::complex<double> *source, size_t nelems) {
    return shmem_complexd_sum_exscan(team, (shmem_complexd *)dest, (const shmem_complexd *)source, nelems);
}
