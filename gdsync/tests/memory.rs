//! Memory of each kind as streams see it: allocated here, or brought by the user.

mod common;

use std::ptr::NonNull;

use common::{Outcome, on_host_and_cuda, soon};
use gdsync::{Buffer, Device, Error, PeerMemory, Space};

on_host_and_cuda!(
    memory_of_every_space_comes_zeroed_and_keeps_what_is_written,
    a_vector_of_the_user_is_reached_from_a_stream_without_a_copy,
    part_of_the_users_memory_is_registered_and_only_that_is_written,
    the_same_memory_is_registered_several_times_and_for_several_devices,
    plain_host_memory_is_for_host_streams_only,
    more_memory_than_there_is_is_an_error,
    a_slice_is_exported_and_mapped_for_the_same_device,
);

fn memory_of_every_space_comes_zeroed_and_keeps_what_is_written(device: &Device) -> Outcome {
    let values: Vec<u64> = (0..5000).map(|i| i * i).collect();
    for space in [Space::Host, Space::Pinned, Space::Device] {
        for _ in 0..3 {
            // Memory that was used before and given back is zeroed again.
            let buffer = Buffer::<u64>::new(device, space, values.len())?;
            assert!(buffer.to_vec()?.iter().all(|value| *value == 0), "{space}");
            buffer.write(&values)?;
            assert_eq!(buffer.to_vec()?, values, "{space}");
        }
    }
    Ok(())
}

fn a_vector_of_the_user_is_reached_from_a_stream_without_a_copy(device: &Device) -> Outcome {
    let values: Vec<u32> = (0..20_000).collect();
    let address = values.as_ptr();
    let buffer = Buffer::from_vec(device, values)?;
    assert_eq!(buffer.host_address().map(|a| a.as_ptr().cast_const()), Some(address));
    let (stream, there) = (device.stream()?, device.alloc::<u32>(20_000)?);
    stream.copy(&there, &buffer)?;
    stream.fill(&buffer.slice(0..5)?, 0xff)?;
    stream.synchronize(soon())?;
    assert_eq!(there.to_vec()?, (0..20_000).collect::<Vec<_>>());
    assert_eq!(buffer.slice(3..7)?.to_vec()?, [u32::MAX, u32::MAX, 5, 6]);
    Ok(())
}

fn part_of_the_users_memory_is_registered_and_only_that_is_written(device: &Device) -> Outcome {
    // Host memory: the middle page of three.
    let mut pages = vec![1u8; 3 * 4096 + 4096];
    let start = pages.as_ptr().align_offset(4096) + 4096;
    let middle = NonNull::from(&mut pages[start..start + 4096]).cast::<u8>();
    // SAFETY: `pages` outlives the buffer and the synchronise.
    let buffer = unsafe { Buffer::from_host_memory(device, middle, 4096, ())? };
    let stream = device.stream()?;
    stream.fill(&buffer, 9)?;
    stream.synchronize(soon())?;
    drop(buffer);
    assert!(
        pages
            .iter()
            .enumerate()
            .all(|(i, byte)| *byte == if (start..start + 4096).contains(&i) { 9 } else { 1 })
    );
    // CUDA memory: a range of a larger allocation.
    let whole = device.alloc::<u32>(1000)?;
    if device.as_cuda().is_none() {
        // SAFETY: refused before the address is used.
        let refused = unsafe { Buffer::<u32>::from_cuda_memory(device, 4096, 1, ()) };
        assert!(matches!(refused, Err(Error::Unsupported { .. })));
        return Ok(());
    }
    let address = whole.device_address().ok_or("no address")?;
    // SAFETY: `whole` outlives it.
    let part = unsafe { Buffer::<u32>::from_cuda_memory(device, address + 400, 50, ())? };
    stream.fill(&part, 0x11)?;
    stream.synchronize(soon())?;
    let expected = |i: usize| if (100..150).contains(&i) { 0x1111_1111 } else { 0 };
    assert!(whole.to_vec()?.iter().enumerate().all(|(i, value)| *value == expected(i)));
    // SAFETY: refused: the range leaves the allocation.
    let beyond = unsafe { Buffer::<u32>::from_cuda_memory(device, address + 400, 1 << 30, ()) };
    assert!(matches!(beyond, Err(Error::OutOfRange { offset: 400, .. })), "{beyond:?}");
    // SAFETY: refused: host memory is no device memory.
    let host = unsafe { Buffer::<u8>::from_cuda_memory(device, pages.as_ptr() as u64, 16, ()) };
    assert!(matches!(host, Err(Error::Cuda { .. })), "{host:?}");
    Ok(())
}

fn the_same_memory_is_registered_several_times_and_for_several_devices(device: &Device) -> Outcome {
    let mut pages = vec![1u8; 3 * 4096];
    let start = pages.as_ptr().align_offset(4096);
    let page = NonNull::from(&mut pages[start..start + 4096]).cast::<u8>();
    // SAFETY: `pages` outlives the buffers and the synchronise.
    let register = |device: &Device| unsafe { Buffer::from_host_memory(device, page, 4096, ()) };
    let other = device.ordinal().and_then(|it| Device::cuda(it + 1).ok());
    let other = other.unwrap_or_else(|| device.clone());
    // Whoever was first is the first to go, and the other way round; nothing of it is left for the next round.
    for (first, last) in [(device, &other), (&other, device), (device, &other)] {
        let (one, two) = (register(first)?, register(last)?);
        let again = register(last)?;
        drop((one, again));
        let stream = last.stream()?;
        stream.fill(&two, 9)?;
        stream.synchronize(soon())?;
        assert!(pages[start..start + 4096].iter().all(|byte| *byte == 9));
        pages[start..start + 4096].fill(1);
        drop(two);
    }
    Ok(())
}

fn plain_host_memory_is_for_host_streams_only(device: &Device) -> Outcome {
    let plain = Buffer::<u8>::new(device, Space::Host, 100)?;
    let (stream, there) = (device.stream()?, device.alloc::<u8>(100)?);
    let copied = stream.copy(&there, &plain);
    match device {
        Device::Host => copied?,
        Device::Cuda(_) => assert!(matches!(copied, Err(Error::NotReachable { .. })), "{copied:?}"),
    }
    stream.synchronize(soon())?;
    Ok(())
}

fn more_memory_than_there_is_is_an_error(device: &Device) -> Outcome {
    for space in [Space::Pinned, Space::Device] {
        let error = Buffer::<u8>::new(device, space, 1 << 46).err().ok_or("64 TiB?")?;
        assert!(!error.to_string().is_empty());
    }
    // And the device works on.
    assert_eq!(device.alloc::<u8>(16)?.to_vec()?, [0; 16]);
    Ok(())
}

fn a_slice_is_exported_and_mapped_for_the_same_device(device: &Device) -> Outcome {
    let buffer = device.alloc::<u32>(100)?;
    let peer = PeerMemory::map(&buffer.slice(40..50)?.export()?, device)?;
    let stream = device.stream()?;
    stream.fill(&peer.buffer, 0x22)?;
    stream.synchronize(soon())?;
    let expected = |i: usize| if (40..50).contains(&i) { 0x2222_2222 } else { 0 };
    assert!(buffer.to_vec()?.iter().enumerate().all(|(i, value)| *value == expected(i)));
    Ok(())
}
