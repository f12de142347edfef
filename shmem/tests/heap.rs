//! The symmetric heap of Rust, over mapped memory and the NIC: what is put arrives, and all PEs have the same places whatever they drop
//! when.

use libmp::{AtomicOp, Config, Device, Error, World};
use mp_shmem::{Heap, Symmetric};

const PES: usize = 3;

/// Runs `pe` on all PEs of a world of threads, over each path.
fn everywhere(bytes: usize, pe: impl Fn(&World, &Heap) + Sync) {
    on(&Device::Host, &["auto", "nic", "nic-tcp"], bytes, pe);
}

/// Runs `pe` on all PEs, whose heaps are on `device`.
fn on(device: &Device, paths: &[&str], bytes: usize, pe: impl Fn(&World, &Heap) + Sync) {
    for path in paths {
        let config = Config::from_variables([("MP_PATH", *path)]).unwrap();
        let worlds = World::threads_with_config(PES, &config).unwrap();
        let run = |world: World| {
            let heap = Heap::new(&world, device, bytes).unwrap();
            pe(&world, &heap);
            heap.barrier().unwrap();
            drop(heap);
            world.finish().unwrap();
        };
        let run = &run;
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                worlds.into_iter().map(|world| scope.spawn(move || run(world))).collect();
            threads.into_iter().for_each(|thread| thread.join().expect(path));
        });
    }
}

/// Elements go around in a ring, by every kind of call.
fn around(device: &Device, world: &World, heap: &Heap) {
    let me = world.rank();
    let (narrow, wide) = (heap.alloc::<u8>(5).unwrap(), heap.alloc::<f64>(100).unwrap());
    assert_eq!(wide.local().to_vec().unwrap(), [0.0; 100]);
    // Nobody puts before all have looked.
    heap.barrier().unwrap();
    let right = (me + 1) % PES;
    narrow.put(right, 3, &[me as u8, 9]).unwrap();
    let values: Vec<f64> = (0..100).map(|i| (100 * me + i) as f64).collect();
    let source = world.alloc(device, 100).unwrap();
    source.write(&values).unwrap();
    wide.start_put(right, 0, &source).unwrap();
    heap.barrier().unwrap();
    let left = (me + PES - 1) % PES;
    assert_eq!(narrow.local().to_vec().unwrap(), [0, 0, 0, left as u8, 9]);
    assert_eq!(wide.local().to_vec().unwrap()[7], (100 * left + 7) as f64);
    let (mut two, target) = ([0.0; 2], world.alloc::<f64>(device, 3).unwrap());
    wide.get(right, 98, &mut two).unwrap();
    wide.start_get(left, 10, &target).unwrap();
    heap.quiet().unwrap();
    assert_eq!(two, [(100 * me + 98) as f64, (100 * me + 99) as f64]);
    let third = (left + PES - 1) % PES;
    assert_eq!(target.to_vec().unwrap(), [10, 11, 12].map(|i| (100 * third + i) as f64));
    heap.barrier().unwrap();
}

#[test]
fn what_is_put_into_an_object_is_in_that_object_of_the_other() {
    everywhere(1 << 16, |world, heap| around(&Device::Host, world, heap));
}

#[test]
#[ignore = "needs a GPU"]
fn what_is_put_into_an_object_on_a_gpu_is_in_that_object_of_the_other() {
    let gpu = Device::cuda(0).unwrap();
    on(&gpu, &["auto"], 1 << 16, |world, heap| {
        around(&gpu, world, heap);
        let count = heap.alloc::<u32>(3).unwrap();
        count.atomic(1, 2, AtomicOp::Add(2)).unwrap();
        heap.barrier().unwrap();
        assert_eq!(count.atomic(1, 2, AtomicOp::Fetch).unwrap(), 2 * PES as u32);
    });
}

#[test]
fn all_pes_add_to_one_word() {
    everywhere(4096, |_, heap| {
        let count = heap.alloc::<u32>(3).unwrap();
        for _ in 0..200 {
            count.atomic(1, 2, AtomicOp::Add(1)).unwrap();
        }
        heap.barrier().unwrap();
        assert_eq!(count.atomic(1, 2, AtomicOp::Fetch).unwrap(), 200 * PES as u32);
        heap.barrier().unwrap();
    });
}

#[test]
fn objects_that_pes_drop_at_different_times_are_given_back_when_all_have() {
    everywhere(4096, |world, heap| {
        let mut held: Vec<Symmetric<'_, u64>> = (0..8).map(|_| heap.alloc(64).unwrap()).collect();
        // The heap is full.
        let text = heap.alloc::<u64>(1).unwrap_err().to_string();
        assert!(text.contains("8 bytes are more than is left in one piece, 0 of 4096"), "{text}");
        if world.rank() != 1 {
            held.remove(3);
        }
        heap.alloc::<u64>(64).unwrap_err();
        if world.rank() == 1 {
            held.remove(3);
        }
        let again = heap.alloc::<u64>(64).unwrap();
        let me = world.rank() as u64;
        again.put((world.rank() + 1) % PES, 63, &[me]).unwrap();
        heap.barrier().unwrap();
        let values = again.local().to_vec().unwrap();
        assert_eq!(values[63], (me + PES as u64 - 1) % PES as u64);
        // Not one of the others is touched, and the new one had nothing of the old.
        assert!(held.iter().all(|other| other.local().to_vec().unwrap() == [0; 64]));
        assert!(values[..63].iter().all(|value| *value == 0));
        heap.barrier().unwrap();
    });
}

#[test]
fn mistakes_are_refused_with_what_there_is() {
    everywhere(4096, |world, heap| {
        let object = heap.alloc::<u16>(10).unwrap();
        let error = object.put(0, 9, &[1, 2]).unwrap_err();
        assert!(matches!(error, Error::OutOfRange { at: 9, len: 2, size: 10, .. }), "{error}");
        object.get(0, usize::MAX, &mut [0]).unwrap_err();
        object.put(PES, 0, &[1]).unwrap_err();
        let text = heap.alloc::<u64>(1 + world.rank() % 2).unwrap_err().to_string();
        assert!(text.contains("8 ") && text.contains("16 ") && text.contains("on PE"), "{text}");
        heap.alloc::<u64>(usize::MAX).unwrap_err();
        // All have heard of it, and go on.
        assert_eq!(heap.alloc::<u8>(7).unwrap().len(), 7);
    });
}
