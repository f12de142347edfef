//! OpenCL memory on whatever platform there is; CI installs PoCL, which runs on the CPU.

use gdsync::Error;
use gdsync::opencl::{Context, Event, Memory, Queues};

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 256) as u8).collect()
}

#[test]
#[ignore = "needs an OpenCL platform"]
fn bytes_get_into_memory_and_out_of_it_whole_and_beside_nothing() {
    let memory = Context::open().unwrap().alloc(1000).unwrap();
    memory.write(&[0xee; 1000]).unwrap();
    memory.slice(13..613).unwrap().write(&bytes(600)).unwrap();
    let all = memory.to_vec().unwrap();
    assert!(all[..13] == [0xee; 13] && all[13..613] == bytes(600) && all[613..] == [0xee; 387]);
    assert!(matches!(memory.slice(999..1001), Err(Error::OutOfRange { size: 1000, .. })));
    assert!(matches!(memory.write(&[0; 1001]), Err(Error::OutOfRange { .. })));
}

#[test]
#[ignore = "needs an OpenCL platform"]
fn a_sub_buffer_is_the_part_of_its_buffer() {
    use cl3::memory::{CL_BUFFER_CREATE_TYPE_REGION, create_sub_buffer, release_mem_object};
    let memory = Context::open().unwrap().alloc(8192).unwrap();
    memory.write(&bytes(8192)).unwrap();
    let region = [4096usize, 1000];
    // SAFETY: origin and size, as `cl_buffer_region` has them; aligned as any device wants it.
    let raw = unsafe {
        let region = region.as_ptr().cast();
        create_sub_buffer(memory.as_raw(), 0, CL_BUFFER_CREATE_TYPE_REGION, region).unwrap()
    };
    // SAFETY: it is released once, after it was adopted.
    let part = unsafe {
        let part = Memory::adopt(raw).unwrap();
        release_mem_object(raw).unwrap();
        part
    };
    assert_eq!(part.len(), 1000);
    assert!(part.to_vec().unwrap() == bytes(8192)[4096..5096]);
    part.slice(10..13).unwrap().write(&[1, 2, 3]).unwrap();
    assert_eq!(memory.slice(4105..4110).unwrap().to_vec().unwrap()[1..4], [1, 2, 3]);
}

#[test]
#[ignore = "needs an OpenCL platform"]
fn memory_that_kernels_may_only_read_says_so_and_what_is_no_buffer_is_refused() {
    use cl3::memory::{CL_MEM_READ_ONLY, create_buffer, release_mem_object};
    let context = Context::open().unwrap();
    assert!(context.alloc(1).unwrap().is_writable());
    // SAFETY: no host memory is named; it is released once.
    let memory = unsafe {
        let raw = create_buffer(context.as_raw(), CL_MEM_READ_ONLY, 8, std::ptr::null_mut());
        let memory = Memory::adopt(raw.unwrap()).unwrap();
        release_mem_object(raw.unwrap()).unwrap();
        memory
    };
    assert!(!memory.is_writable());
    // SAFETY: NULL is allowed.
    let none = unsafe { Memory::adopt(std::ptr::null_mut()) };
    assert!(none.unwrap_err().to_string().contains("NULL"));
}

#[test]
#[ignore = "needs an OpenCL platform"]
fn queues_are_made_once_for_each_context_that_is_kept_and_outlive_its_users_release() {
    let contexts: Vec<Context> = (0..5).map(|_| Context::open().unwrap()).collect();
    let memories: Vec<Memory> = contexts.iter().map(|context| context.alloc(8).unwrap()).collect();
    let queues = Queues::new(4);
    for _ in 0..1000 {
        queues.of(&memories[0]).unwrap();
    }
    assert_eq!(queues.made(), 1);
    // Four in turn are all kept; a fifth one pushes out the one used longest ago, each time.
    for round in 0..100 {
        queues.of(&memories[round % 4]).unwrap();
    }
    assert_eq!(queues.made(), 4);
    for round in 0..100 {
        queues.of(&memories[round % 5]).unwrap();
    }
    assert!((4 + 90..=4 + 100).contains(&queues.made()), "{}", queues.made());
    let kept = queues.of(&memories[0]).unwrap();
    drop(contexts);
    let from = bytes(8);
    // SAFETY: the bytes are there until the copy has ended.
    let done = unsafe { kept.write(&memories[0], 0, from.as_ptr(), 8).unwrap() };
    while !done.is_reached().unwrap() {
        std::thread::yield_now();
    }
    assert_eq!(memories[0].to_vec().unwrap(), from);
}

#[test]
#[ignore = "needs an OpenCL platform"]
fn a_point_in_a_queue_is_reached_when_what_is_before_it_is_done_and_not_while_it_waits() {
    use cl3::command_queue::{
        create_command_queue, enqueue_marker_with_wait_list, release_command_queue,
    };
    use cl3::event::{create_user_event, release_event, set_user_event_status};
    let context = Context::open().unwrap();
    // SAFETY: objects of one context, each released once.
    unsafe {
        let queue = create_command_queue(context.as_raw(), context.device(), 0).unwrap();
        let gate = create_user_event(context.as_raw()).unwrap();
        let blocked = enqueue_marker_with_wait_list(queue, 1, &gate).unwrap();
        let (behind, adopted) = (Event::of_queue(queue).unwrap(), Event::adopt(blocked).unwrap());
        assert!(!behind.is_reached().unwrap() && !adopted.is_reached().unwrap());
        set_user_event_status(gate, 0).unwrap();
        while !behind.is_reached().unwrap() || !adopted.is_reached().unwrap() {
            std::thread::yield_now();
        }
        for event in [gate, blocked] {
            release_event(event).unwrap();
        }
        release_command_queue(queue).unwrap();
    }
}
