//! What the two comparisons of the mlx5 formats share: random requests and completions in a form that C, C++ and
//! Rust all read, the building of a shim, and the comparison itself.

// Each test binary that includes this module uses its own part of it.
#![allow(dead_code)]

use gdsync::wqe::{
    Completion, CompletionKind, Cqe, DataSegment, Entry, ErrorSide, Fence, Notify, Octoword,
    Operation, Payload, ReceiveRing, Received, RemoteAddress, SendRing, Syndrome, WorkRequest,
    WqeOpcode,
};
use libloading::Library;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::process::Command;
use zerocopy::FromBytes;

/// How many entries, and how many completions, each comparison makes.
pub const COMPARED: usize = 1_000_000;

const RING_BLOCKS: usize = 32;
const FENCES: [Fence; 5] =
    [Fence::None, Fence::InitiatorSmall, Fence::ReadsAndAtomics, Fence::Strong, Fence::Full];
const NOTIFIES: [Notify; 4] =
    [Notify::OnError, Notify::OnFirstError, Notify::Always, Notify::AlwaysWithEvent];
const OPCODES: [WqeOpcode; 9] = [
    WqeOpcode::Nop,
    WqeOpcode::Send,
    WqeOpcode::SendImm,
    WqeOpcode::Write,
    WqeOpcode::WriteImm,
    WqeOpcode::Read,
    WqeOpcode::FetchAdd,
    WqeOpcode::CompareSwap,
    WqeOpcode::Dump,
];

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct FlatSegment {
    address: u64,
    lkey: u32,
    length: u32,
}

/// `struct flat_request` of request.h.
#[repr(C)]
pub struct FlatRequest {
    qpn: u32,
    index: u16,
    opcode: u8,
    fm_ce_se: u8,
    imm: u32,
    rkey: u32,
    raddr: u64,
    swap_or_add: u64,
    compare: u64,
    segments: u32,
    is_inline: u32,
    inline_length: u32,
    optimised: u32,
    segment: [FlatSegment; 62],
    data: [u8; 992],
}

/// `struct flat_completion` of request.h.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct FlatCompletion {
    qpn: u32,
    user_index: u32,
    imm: u32,
    byte_count: u32,
    index: u16,
    opcode: u8,
    owner: u8,
    solicited: u8,
    format: u8,
    wqe_opcode: u8,
    syndrome: u8,
    vendor: u8,
    pad: [u8; 3],
}

type Encode = unsafe extern "C" fn(*const FlatRequest, *mut u8, usize) -> u32;
type EncodeReceive = unsafe extern "C" fn(*const FlatSegment, u32, u32, *mut u8);
type DecodeCompletion = unsafe extern "C" fn(*const Aligned, *mut FlatCompletion);

/// A shared library built from one of the shims.
pub struct Shim {
    library: Library,
    /// Whether `shim_encode` returns blocks (the CUDA header) or octowords (mlx5dv.h).
    blocks: bool,
}

impl Shim {
    /// Compiles `source` of this folder with `compiler` and loads it.
    pub fn build(compiler: &str, source: &str, flags: &[&str], blocks: bool) -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mlx5_common");
        let folder = tempfile::tempdir().expect("a folder for the shim");
        let out = folder.path().join("shim.so");
        let status = Command::new(compiler)
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
            .arg(&out)
            .args(flags)
            .arg(here.join(source))
            .status()
            .unwrap_or_else(|e| panic!("{compiler} does not start: {e}"));
        assert!(status.success(), "{compiler} cannot compile {source}: {status}");
        // SAFETY: the library was built from this repository's source and has no initialisers.
        let library = unsafe { Library::new(&out) }.expect("the shim loads");
        // The loaded library outlives its file, which goes with the folder.
        Self { library, blocks }
    }

    /// The symbol `name`.
    pub fn get<T: Copy>(&self, name: &str) -> T {
        // SAFETY: the callers name the type that the shim's source declares.
        *unsafe { self.library.get::<T>(name) }.unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// The array `name` with its length in `name_length`.
    pub fn words(&self, name: &str) -> &[u32] {
        let (words, length): (*const u32, *const u32) =
            (self.get(name), self.get(&format!("{name}_length")));
        // SAFETY: the shim declares both as constants that live as long as the library.
        unsafe { std::slice::from_raw_parts(words, *length as usize) }
    }
}

impl FlatRequest {
    /// Space for a request, to be filled by `randomise` again and again.
    fn new() -> Box<Self> {
        Box::new(Self {
            qpn: 0,
            index: 0,
            opcode: 0,
            fm_ce_se: 0,
            imm: 0,
            rkey: 0,
            raddr: 0,
            swap_or_add: 0,
            compare: 0,
            segments: 0,
            is_inline: 0,
            inline_length: 0,
            optimised: 0,
            segment: [FlatSegment::default(); 62],
            data: [0; 992],
        })
    }

    /// Another request: every field random, lists mostly short and sometimes as long as they can be.
    fn randomise(&mut self, rng: &mut impl Rng) -> (Fence, Notify, bool) {
        let opcode = OPCODES[rng.random_range(0..OPCODES.len())];
        let (fence, notify) = (FENCES[rng.random_range(0..5)], NOTIFIES[rng.random_range(0..4)]);
        let solicited: bool = rng.random();
        self.qpn = rng.random_range(0..1 << 24);
        self.index = rng.random();
        self.opcode = opcode as u8;
        self.fm_ce_se = (fence as u8) << 5 | (notify as u8) << 2 | u8::from(solicited) << 1;
        (self.imm, self.rkey, self.raddr) = (rng.random(), rng.random(), rng.random());
        (self.swap_or_add, self.compare) = (rng.random(), rng.random());
        self.optimised = rng.random_range(0..2);
        let long = rng.random_ratio(1, 50);
        let remote =
            matches!(opcode, WqeOpcode::Write | WqeOpcode::WriteImm | WqeOpcode::Read) as usize;
        let room = 62 - remote;
        let may_inline = !matches!(opcode, WqeOpcode::Read | WqeOpcode::Nop);
        let one = matches!(opcode, WqeOpcode::FetchAdd | WqeOpcode::CompareSwap | WqeOpcode::Dump);
        self.is_inline = u32::from(may_inline && !one && rng.random());
        (self.segments, self.inline_length) = (0, 0);
        if self.is_inline == 1 {
            let most = if long { 16 * room - 4 } else { 100 };
            self.inline_length = rng.random_range(0..=most) as u32;
            rng.fill(&mut self.data[..self.inline_length as usize]);
        } else if opcode != WqeOpcode::Nop {
            let most = if long { room } else { 4 };
            self.segments = if one { 1 } else { rng.random_range(0..=most) as u32 };
            for segment in &mut self.segment[..self.segments as usize] {
                *segment = random_segment(rng);
            }
        }
        match opcode {
            WqeOpcode::FetchAdd => (self.compare, self.segment[0].length) = (0, 8),
            WqeOpcode::CompareSwap => self.segment[0].length = 8,
            _ => {}
        }
        (fence, notify, solicited)
    }

    fn operation<'a>(&'a self, list: &'a [DataSegment]) -> Operation<'a> {
        let remote = RemoteAddress { address: self.raddr, rkey: self.rkey };
        let payload = if self.is_inline == 1 {
            Payload::Inline(&self.data[..self.inline_length as usize])
        } else {
            Payload::Gather(list)
        };
        let imm = Some(self.imm);
        match WqeOpcode::try_from(self.opcode).unwrap() {
            WqeOpcode::Nop => Operation::Nop,
            WqeOpcode::Send => Operation::Send { payload, imm: None },
            WqeOpcode::SendImm => Operation::Send { payload, imm },
            WqeOpcode::Write => Operation::Write { remote, payload, imm: None },
            WqeOpcode::WriteImm => Operation::Write { remote, payload, imm },
            WqeOpcode::Read => Operation::Read { remote, into: list },
            WqeOpcode::FetchAdd => {
                Operation::FetchAdd { remote, add: self.swap_or_add, into: list[0] }
            }
            WqeOpcode::CompareSwap => Operation::CompareSwap {
                remote,
                compare: self.compare,
                swap: self.swap_or_add,
                into: list[0],
            },
            WqeOpcode::Dump => Operation::Dump { from: list[0] },
            other => panic!("the generator does not make {other}"),
        }
    }
}

fn random_segment(rng: &mut impl Rng) -> FlatSegment {
    let length = if rng.random_ratio(1, 20) { 1 << 31 } else { rng.random_range(1..1 << 31) };
    FlatSegment { address: rng.random(), lkey: rng.random(), length }
}

fn data_segment(s: &FlatSegment) -> DataSegment {
    DataSegment::new(s.lkey, s.address, s.length).unwrap()
}

/// Lets both sides write the same random requests into rings of the same content and compares the rings.
pub fn compare_entries(shim: &Shim, seed: u64) {
    let encode: Encode = shim.get("shim_encode");
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut theirs: Vec<Octoword> = vec![[0xee; 16]; 4 * RING_BLOCKS];
    let mut ours = SendRing::new(theirs.clone()).unwrap();
    let (mut flat, mut entry, mut fetched) = (FlatRequest::new(), Entry::new(), Entry::new());
    let mut seen = [0usize; 256];
    let mut wrapped = 0usize;
    for n in 0..COMPARED {
        let (fence, notify, solicited) = flat.randomise(&mut rng);
        let list: Vec<_> =
            flat.segment[..flat.segments as usize].iter().map(data_segment).collect();
        let operation = flat.operation(&list);
        let (qpn, index) = (flat.qpn, flat.index);
        let request = WorkRequest { qpn, index, fence, notify, solicited, operation };
        entry.encode(&request).unwrap();
        ours.store(&entry).unwrap();
        // SAFETY: the shim reads one request and writes at most 63 octowords, modulo the size of the ring.
        let size = unsafe { encode(&*flat, theirs.as_mut_ptr().cast(), 64 * RING_BLOCKS) };
        let expected = if shim.blocks { entry.blocks() } else { entry.octowords().len() };
        assert_eq!(size as usize, expected, "size of entry {n} of seed {seed}: {request:x?}");
        assert!(*ours.memory() == theirs, "entry {n} of seed {seed} differs: {request:x?}");
        ours.fetch(qpn, index, &mut fetched).unwrap();
        assert_eq!(fetched.decode().unwrap(), request, "entry {n} of seed {seed}");
        seen[usize::from(flat.opcode)] += 1;
        let last = usize::from(index) % RING_BLOCKS + entry.blocks();
        wrapped += usize::from(last > RING_BLOCKS);
    }
    assert!(OPCODES.iter().all(|o| seen[*o as usize] > COMPARED / 20), "every opcode was met");
    assert!(wrapped > COMPARED / 200, "entries have wrapped: {wrapped}");
    println!("{COMPARED} entries equal, {wrapped} of them wrapped");
}

/// The same for receives.
pub fn compare_receives(shim: &Shim, seed: u64) {
    let encode: EncodeReceive = shim.get("shim_encode_receive");
    let mut rng = SmallRng::seed_from_u64(seed);
    let count = COMPARED / 10;
    for n in 0..count {
        let stride = 1usize << rng.random_range(0..6);
        let flat: Vec<_> =
            (0..rng.random_range(0..=stride)).map(|_| random_segment(&mut rng)).collect();
        let list: Vec<_> = flat.iter().map(data_segment).collect();
        let mut theirs: Vec<Octoword> = vec![[0xee; 16]; stride];
        let mut ours = ReceiveRing::new(theirs.clone(), stride).unwrap();
        ours.store(rng.random(), &list).unwrap();
        let (len, stride) = (flat.len() as u32, stride as u32);
        // SAFETY: `theirs` has room for `stride` segments and `flat` holds `len`, which is not more.
        unsafe { encode(flat.as_ptr(), len, stride, theirs.as_mut_ptr().cast()) };
        assert!(*ours.memory() == theirs, "receive {n} of seed {seed} differs: {list:?}");
    }
    println!("{count} receives equal");
}

/// Lets the shim read completions that Rust wrote, and both read random bytes.
pub fn compare_completions(shim: &Shim, seed: u64) {
    let decode: DecodeCompletion = shim.get("shim_decode_completion");
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut accepted = 0;
    for n in 0..COMPARED {
        let mut noise = [0u8; 64];
        rng.fill(&mut noise);
        let random = n % 2 == 1;
        let cqe = if random {
            Cqe::read_from_bytes(&noise[..]).unwrap()
        } else {
            Cqe::encode(&random_completion(&mut rng), rng.random()).unwrap()
        };
        let mut theirs = FlatCompletion::default();
        let aligned = Aligned(cqe);
        // SAFETY: the shim reads 64 bytes, aligned like a completion, and writes one struct.
        unsafe { decode(&aligned, &mut theirs) };
        assert_eq!(u8::from(cqe.owner()), theirs.owner, "owner of completion {n} of seed {seed}");
        match cqe.decode() {
            Ok(ours) => {
                let expected = flatten(&ours, &theirs);
                assert_eq!(theirs, expected, "completion {n} of seed {seed}");
                accepted += usize::from(random);
            }
            Err(e) => {
                assert!(random, "completion {n} of seed {seed}: {e}");
                let ordinary = theirs.opcode <= 4 && theirs.format == 0;
                let known = theirs.opcode != 0 || WqeOpcode::try_from(theirs.wqe_opcode).is_ok();
                let error = matches!(theirs.opcode, 13 | 14);
                assert!(!(error || ordinary && known), "refused {theirs:?}: {e}");
            }
        }
    }
    assert!(accepted > COMPARED / 20, "random bytes are often a completion: {accepted}");
    println!("{COMPARED} completions equal, half of them random bytes");
}

/// A completion at the address alignment that a queue gives it.
#[repr(C, align(64))]
pub struct Aligned(Cqe);

/// What the fields of `ours` say, in the flat form; what Rust does not expose is taken from `theirs`.
fn flatten(ours: &Completion, theirs: &FlatCompletion) -> FlatCompletion {
    let mut flat = FlatCompletion {
        qpn: ours.qpn,
        user_index: ours.user_index,
        index: ours.index,
        ..FlatCompletion::default()
    };
    flat.owner = theirs.owner;
    match ours.kind {
        CompletionKind::Request { opcode, byte_count } => {
            (flat.opcode, flat.wqe_opcode, flat.byte_count) = (0, opcode as u8, byte_count);
            (flat.imm, flat.solicited) = (theirs.imm, theirs.solicited);
        }
        CompletionKind::Receive { by, byte_count, solicited } => {
            (flat.opcode, flat.imm) = match by {
                Received::WriteImm(imm) => (1, imm),
                Received::Send => (2, theirs.imm),
                Received::SendImm(imm) => (3, imm),
                Received::SendInvalidate(key) => (4, key),
            };
            (flat.byte_count, flat.solicited) = (byte_count, u8::from(solicited));
            flat.wqe_opcode = theirs.wqe_opcode;
        }
        CompletionKind::Error { side, syndrome, vendor, opcode } => {
            flat.opcode = if side == ErrorSide::Requester { 13 } else { 14 };
            (flat.syndrome, flat.vendor, flat.wqe_opcode) = (syndrome.into(), vendor, opcode);
        }
        other => panic!("a completion the comparison does not know: {other:?}"),
    }
    flat
}

fn random_completion(rng: &mut impl Rng) -> Completion {
    let kind = match rng.random_range(0..3) {
        0 => CompletionKind::Request {
            opcode: WqeOpcode::ALL[rng.random_range(0..WqeOpcode::ALL.len())],
            byte_count: rng.random(),
        },
        1 => CompletionKind::Receive {
            by: match rng.random_range(0..4) {
                0 => Received::Send,
                1 => Received::SendImm(rng.random()),
                2 => Received::SendInvalidate(rng.random()),
                _ => Received::WriteImm(rng.random()),
            },
            byte_count: rng.random(),
            solicited: rng.random(),
        },
        _ => CompletionKind::Error {
            side: if rng.random() { ErrorSide::Requester } else { ErrorSide::Responder },
            syndrome: Syndrome::from(rng.random::<u8>()),
            vendor: rng.random(),
            opcode: rng.random(),
        },
    };
    let (qpn, user_index) = (rng.random_range(0..1 << 24), rng.random_range(0..1 << 24));
    Completion { qpn, index: rng.random(), user_index, kind }
}
