//! Memory operations as the parameters of `cuStreamBatchMemOp`.

use cudarc::driver::sys;
use sys::CUstreamBatchMemOpParams_union as Param;

use crate::error::Result;
use crate::memop::MemOp;

/// Parameters of no operation.
pub(super) const EMPTY: Param = Param { pad: [0; 6] };

pub(super) fn encode(op: &MemOp<'_>) -> Result<Param> {
    use sys::CUstreamBatchMemOpType as Type;
    let address = op.device_address()?;
    let mut parameter = EMPTY;
    match op {
        MemOp::Write32(_, value) => {
            parameter.operation = Type::CU_STREAM_MEM_OP_WRITE_VALUE_32;
            parameter.writeValue.address = address;
            parameter.writeValue.__bindgen_anon_1.value = *value;
        }
        MemOp::Write64(_, value) => {
            parameter.operation = Type::CU_STREAM_MEM_OP_WRITE_VALUE_64;
            parameter.writeValue.address = address;
            parameter.writeValue.__bindgen_anon_1.value64 = *value;
        }
        MemOp::WaitGeq32(_, value) => {
            parameter.operation = Type::CU_STREAM_MEM_OP_WAIT_VALUE_32;
            parameter.waitValue.address = address;
            parameter.waitValue.__bindgen_anon_1.value = *value;
        }
        MemOp::WaitGeq64(_, value) => {
            parameter.operation = Type::CU_STREAM_MEM_OP_WAIT_VALUE_64;
            parameter.waitValue.address = address;
            parameter.waitValue.__bindgen_anon_1.value64 = *value;
        }
        MemOp::Barrier => parameter.operation = Type::CU_STREAM_MEM_OP_BARRIER,
    }
    // Flags stay 0: GEQ for waits, writes ordered after everything before them, barriers at system scope.
    Ok(parameter)
}
