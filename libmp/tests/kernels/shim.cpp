// The kernels of kernels.cu as OS threads: for common/kernels.rs.
#include <mp/host/launch.hpp>

#include "kernels.cu"

MP_HOST_KERNEL(mp_arrivals)
MP_HOST_KERNEL(mp_copies)
MP_HOST_KERNEL(mp_meetings)
MP_HOST_KERNEL(mp_signals)
MP_HOST_KERNEL(test_exchange)
MP_HOST_KERNEL(test_parts)
MP_HOST_KERNEL(test_windows)
MP_HOST_KERNEL(test_contexts)
MP_HOST_KERNEL(test_put)
MP_HOST_KERNEL(test_put_rate)
MP_HOST_KERNEL(test_prepared)
MP_HOST_KERNEL(test_refusals)
MP_HOST_KERNEL(test_collectives)
MP_HOST_KERNEL(test_reduce)
MP_HOST_KERNEL(test_kind)
MP_HOST_KERNEL(test_on_chip)
