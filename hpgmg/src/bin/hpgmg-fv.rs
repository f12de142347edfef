//! HPGMG-FV on the command line.
use hpgmg::comm::threads::ThreadComm;
use hpgmg::options::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let op = match a[3].as_str() { "fv4"=>Operator::Fv4,"fv2"=>Operator::Fv2,"7pt"=>Operator::P7,_=>Operator::P27};
    let config = Config { operator: op, box_dim: 1<<a[1].parse::<u32>().unwrap(), boxes_per_rank: a[2].parse().unwrap(), ..Default::default() };
    let comm = ThreadComm::world(1, std::time::Duration::from_secs(60)).remove(0);
    let t: usize = a[4].parse().unwrap();
    let t0=std::time::Instant::now();
    let mut cpu = hpgmg::cpu::Cpu::new(config, &comm, t).unwrap();
    println!("setup {:?}", t0.elapsed());
    let out = hpgmg::run::run(&mut cpu, hpgmg::run::Effort::Solves(a[5].parse().unwrap()), |_,_,_|{}).unwrap();
    for r in &out.runs { println!("{} {:.17e} umax {:.17e} fmax {:.17e} {:?} {:.3e} dof/s {}", r.dim, r.first.cycles[0].residual, r.umax, r.first.fmax, r.mean, (r.dim as f64).powi(3)/r.mean.as_secs_f64(), r.repeatable); }
    println!("err {:.17e} {:.17e} order {} bottom {}", out.error_2h_h, out.error_4h_2h, out.order(), out.bottom_iterations);
    for l in 0..3 { println!("lambda {:.17e}", cpu.level(l).lambda_max); }
    for l in 0..cpu.timers.levels() { print!("{l}"); for p in hpgmg::timers::Phase::ALL { print!(" {}={:?}", p.name(), cpu.timers.spent(l,p)); } println!(); }
}
