use super::*;

#[test]
fn fresh_memory_of_every_space_is_zero_and_holds_what_is_written() -> Result<()> {
    for space in [Space::Host, Space::Pinned, Space::Device] {
        let buffer = Buffer::<u32>::new(&Device::Host, space, 1000)?;
        assert_eq!(buffer.to_vec()?, vec![0; 1000]);
        let values: Vec<u32> = (0..1000).collect();
        buffer.write(&values)?;
        assert_eq!(buffer.slice(10..20)?.to_vec()?, values[10..20]);
    }
    Ok(())
}

#[test]
fn a_slice_past_the_end_is_refused_with_its_numbers() -> Result<()> {
    let buffer = Buffer::<u64>::new(&Device::Host, Space::Host, 4)?;
    let error = buffer.slice(2..5).unwrap_err().to_string();
    assert_eq!(error, "slice: bytes 16..40 lie outside a buffer of 32 bytes");
    #[allow(clippy::reversed_empty_ranges)]
    let error = buffer.slice(3..2).unwrap_err().to_string();
    assert_eq!(error, "slice: the range 3..2 ends before it begins");
    assert!(buffer.write(&[1, 2, 3]).is_err());
    Ok(())
}

#[test]
fn a_cast_keeps_the_bytes_and_refuses_what_does_not_fit() -> Result<()> {
    let bytes = Buffer::<u8>::from_slice(&Device::Host, Space::Host, &[1, 0, 0, 0, 2, 0, 0, 0, 9])?;
    assert_eq!(bytes.slice(0..8)?.cast::<u32>()?.to_vec()?, [1, 2]);
    assert!(matches!(bytes.cast::<u32>(), Err(Error::LengthMismatch { .. })));
    assert!(matches!(bytes.slice(1..5)?.cast::<u32>(), Err(Error::Misaligned { .. })));
    Ok(())
}

#[test]
fn a_vector_of_the_user_becomes_a_buffer_in_place() -> Result<()> {
    let values = vec![1.5f64, 2.5];
    let address = values.as_ptr();
    let buffer = Buffer::from_vec(&Device::Host, values)?;
    assert_eq!(buffer.host_address().map(|a| a.as_ptr().cast_const()), Some(address));
    assert_eq!(buffer.to_vec()?, [1.5, 2.5]);
    Ok(())
}

#[test]
fn a_part_is_copied_in_and_out_and_nothing_past_the_end() -> Result<()> {
    let buffer = Buffer::<u32>::new(&Device::Host, Space::Pinned, 100)?;
    let (from, mut to) = ([1, 2, 3], [0; 2]);
    // SAFETY: both arrays are this test's, and as long as is said.
    unsafe {
        buffer.copy_in(97, from.as_ptr(), 3)?;
        buffer.copy_out(98, to.as_mut_ptr(), 2)?;
        assert!(matches!(buffer.copy_in(98, from.as_ptr(), 3), Err(Error::OutOfRange { .. })));
        assert!(buffer.copy_out(usize::MAX, to.as_mut_ptr(), 2).is_err());
    }
    assert_eq!(to, [2, 3]);
    Ok(())
}

#[test]
fn elements_without_a_size_are_refused_and_said_to_have_none() {
    let error = Buffer::<()>::new(&Device::Host, Space::Pinned, 3).unwrap_err().to_string();
    assert_eq!(error, "allocation: elements of type () have no size");
    assert!(Buffer::from_vec(&Device::Host, vec![(); 2]).is_err());
}

#[test]
fn a_buffer_is_copied_from_another_of_the_same_length() -> Result<()> {
    let [to, from] = [0u32, 7].map(|first| {
        let values: Vec<u32> = (first..first + 1000).collect();
        Buffer::from_slice(&Device::Host, Space::Pinned, &values).unwrap()
    });
    to.slice(3..500)?.copy_from(&from.slice(10..507)?)?;
    let got = to.to_vec()?;
    assert_eq!((got[2], got[3], got[499], got[500]), (2, 17, 513, 500));
    assert!(matches!(to.copy_from(&from.slice(1..2)?), Err(Error::LengthMismatch { .. })));
    Ok(())
}

/// ThreadSanitizer sees the race if these are plain copies (tools/tsan gdsync/lib).
#[test]
fn what_two_threads_read_and_write_at_once_is_old_or_new() -> Result<()> {
    let buffer = Buffer::<u64>::new(&Device::Host, Space::Pinned, 50)?;
    std::thread::scope(|scope| {
        scope.spawn(|| (1..=500).try_for_each(|round| buffer.write(&[round; 50])).unwrap());
        scope.spawn(|| (501..=1000).try_for_each(|round| buffer.write(&[round; 50])).unwrap());
        for _ in 0..500 {
            assert!(buffer.to_vec().unwrap().iter().all(|word| *word <= 1000));
        }
    });
    assert!([500, 1000].contains(&buffer.to_vec()?[0]));
    Ok(())
}

#[test]
fn an_impossible_size_is_an_error() {
    assert!(Buffer::<u64>::new(&Device::Host, Space::Device, usize::MAX).is_err());
    assert!(Buffer::<u64>::new(&Device::Host, Space::Host, usize::MAX / 16).is_err());
}
