//! Memory operations as the parameters of `cuStreamBatchMemOp`.

use std::fmt;

use cudarc::driver::sys;
use sys::CUstreamBatchMemOpParams_union as Param;

use crate::error::{Error, Result};
use crate::memop::{MemOp, Until};

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
        MemOp::Wait32(_, until) => {
            parameter.operation = Type::CU_STREAM_MEM_OP_WAIT_VALUE_32;
            parameter.waitValue.address = address;
            parameter.waitValue.__bindgen_anon_1.value = until.value();
            parameter.waitValue.flags = flags(until)?;
        }
        MemOp::Wait64(_, until) => {
            parameter.operation = Type::CU_STREAM_MEM_OP_WAIT_VALUE_64;
            parameter.waitValue.address = address;
            parameter.waitValue.__bindgen_anon_1.value64 = until.value();
            parameter.waitValue.flags = flags(until)?;
        }
        MemOp::Barrier => parameter.operation = Type::CU_STREAM_MEM_OP_BARRIER,
    }
    // Other flags stay 0: writes ordered after everything before them, barriers at system scope.
    Ok(parameter)
}

fn flags<T: Copy + fmt::Display + fmt::LowerHex>(until: &Until<T>) -> Result<u32> {
    use sys::CUstreamWaitValue_flags as Flags;
    let flag = match until {
        Until::Geq(_) => Flags::CU_STREAM_WAIT_VALUE_GEQ,
        Until::Eq(_) => Flags::CU_STREAM_WAIT_VALUE_EQ,
        Until::And(_) => Flags::CU_STREAM_WAIT_VALUE_AND,
        Until::Ne(_) | Until::Gt(_) | Until::Lt(_) | Until::Le(_) => {
            return Err(Error::Unsupported {
                what: "a memory operation that waits",
                place: "a CUDA stream".into(),
                why: format!("it cannot wait until a word is {until}; Stream::wait64 can"),
            });
        }
    };
    Ok(flag as u32)
}
