//! A subset of MPI's standard ABI (MPI 5.0, chapter 20) over [`libmp::tagged`], for programs that are to run unmodified. It is not an MPI:
//! what is not here says its name and ends the program. The entry points are in `point_to_point`, `request`, `collective`, `datatype`,
//! `group`, `topology` and `world`; constants and handles are the ABI's, `abi`.

#![allow(non_snake_case, reason = "the names are MPI's")]

mod abi;
mod collective;
mod datatype;
mod group;
mod kind;
mod point_to_point;
mod request;
mod state;
mod topology;
mod traps;
mod world;
