//! The self-test of every NIC provider that this machine has, step by step: what each step got, and what failed. The
//! first thing to run on a machine with RDMA hardware.

mod mlx5;
mod queues;
mod soft;
mod text;
mod verbs;

use std::time::{Duration, Instant};

use gdsync::verbs::PortChoice;
use serde::Serialize;

pub use text::render;

/// What became of every provider.
#[derive(Debug, Serialize)]
pub struct Probe {
    /// The providers, the software NIC first.
    pub providers: Vec<Provider>,
    /// Why there is no RDMA hardware here; `None` if there is some.
    pub no_hardware: Option<String>,
}

/// One provider on one device.
#[derive(Debug, Serialize)]
pub struct Provider {
    /// Such as "soft", "verbs rxe0".
    pub name: String,
    /// Its steps in order. After one that everything else needs has failed there are no more.
    pub steps: Vec<Step>,
}

/// One step.
#[derive(Debug, Serialize)]
pub struct Step {
    /// What was tried.
    pub what: String,
    /// What it should get; empty where any success will do.
    pub expected: String,
    /// What it got.
    pub got: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
}

impl Probe {
    /// Runs all self-tests, those of RDMA devices on the device called `name` if one is named. A provider that fails is part of
    /// the result.
    pub fn run(name: Option<&str>, port: &PortChoice) -> Probe {
        let mut found = Probe::of_software();
        let (devices, no_hardware) = verbs::probe(name, port);
        found.providers.extend(devices);
        found.providers.extend(mlx5::probe(name, port));
        found.no_hardware = no_hardware;
        found
    }

    /// Runs those of the software NIC.
    pub fn of_software() -> Probe {
        Probe { providers: soft::probe(), no_hardware: None }
    }

    /// Whether everything that could be tried works and there is RDMA hardware.
    ///
    /// # Errors
    /// A sentence that says what failed, or what there is none of.
    pub fn verdict(&self) -> Result<(), String> {
        let failed: Vec<&str> = self
            .providers
            .iter()
            .filter(|provider| !provider.works())
            .map(|provider| provider.name.as_str())
            .collect();
        if !failed.is_empty() {
            return Err(format!("the self-test failed: {}", failed.join(", ")));
        }
        match &self.no_hardware {
            Some(why) => Err(format!("no RDMA hardware to test: {why}")),
            None => Ok(()),
        }
    }
}

impl Provider {
    fn new(name: String) -> Provider {
        Provider { name, steps: Vec::new() }
    }

    /// Whether every step went well.
    pub fn works(&self) -> bool {
        self.steps.iter().all(|step| step.error.is_none())
    }

    /// Does a step that any success will do for, and notes what it got, as `describe` says it. `None` if it failed.
    fn step<T, E: std::fmt::Display>(
        &mut self,
        what: impl Into<String>,
        attempt: impl FnOnce() -> Result<T, E>,
        describe: impl FnOnce(&T) -> String,
    ) -> Option<T> {
        self.expect(what, "", attempt, describe)
    }

    /// Does a step, and notes what it should get and what it got, as `describe` says it. `None` if it failed.
    fn expect<T, E: std::fmt::Display>(
        &mut self,
        what: impl Into<String>,
        expected: &str,
        attempt: impl FnOnce() -> Result<T, E>,
        describe: impl FnOnce(&T) -> String,
    ) -> Option<T> {
        let (value, got, error) = match attempt() {
            Ok(value) => {
                let got = describe(&value);
                (Some(value), Some(got), None)
            }
            Err(error) => (None, None, Some(error.to_string())),
        };
        self.steps.push(Step { what: what.into(), expected: expected.into(), got, error });
        value
    }

    /// Has a request carried out, which says how long that took and what the peer's first word and the local second one are then.
    fn request<E: std::fmt::Display>(
        &mut self,
        what: &str,
        expected: [u64; 2],
        request: impl FnOnce(Instant) -> Result<(Duration, [u64; 2]), E>,
    ) {
        let attempt = || match request(Instant::now()).map_err(|error| error.to_string())? {
            (took, found) if found == expected => Ok(took),
            (_, found) => {
                Err(format!("completed, but memory holds {found:?}, expected {expected:?}"))
            }
        };
        let [there, here] = expected;
        self.expect(what, &format!("{there} there and {here} here"), attempt, |took| {
            format!("complete in {:.1} µs", took.as_secs_f64() * 1e6)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(error: Option<&str>, no_hardware: Option<&str>) -> Probe {
        let mut provider = Provider::new("soft".into());
        provider.step("open", || Ok::<_, String>(7), |seven| format!("number {seven}"));
        if let Some(error) = error {
            provider.step("write", || Err::<(), _>(error), |()| String::new());
        }
        Probe { providers: vec![provider], no_hardware: no_hardware.map(str::to_owned) }
    }

    #[test]
    fn the_software_nic_of_this_machine_passes_every_step() {
        for provider in soft::probe() {
            assert!(provider.works(), "{provider:#?}");
            assert!(provider.steps.len() >= 10, "{provider:#?}");
        }
    }

    #[test]
    fn the_steps_of_an_adapter_are_shown_with_what_is_expected_and_seen() {
        let found = Probe { providers: soft::probe(), no_hardware: None };
        let text = render(&found);
        for row in [
            ["NOP rung by the CPU", "a completion", "after "],
            [
                "RDMA_WRITE, inline data, rung by a stream",
                "a completion, and 42 in memory",
                "after ",
            ],
            ["RDMA_WRITE with a wrong key", "the error \"remote access", "\"remote access"],
            ["NOP after that error", "an error, not executed", "\""],
        ] {
            let shown = |line: &str| row.iter().all(|cell| line.contains(cell));
            assert!(text.lines().any(shown), "{row:?} is not in\n{text}");
        }
    }

    #[test]
    fn a_failed_step_is_the_verdict_and_shown() {
        let failed = probe(Some("remote access"), None);
        assert_eq!(failed.verdict().unwrap_err(), "the self-test failed: soft");
        let text = render(&failed);
        assert!(text.contains("open") && text.contains("number 7"), "{text}");
        assert!(text.contains("FAILED: remote access"), "{text}");
    }

    #[test]
    fn a_machine_without_hardware_is_no_success() {
        assert!(probe(None, None).verdict().is_ok());
        let without = probe(None, Some("libibverbs shows no device"));
        let sentence = "no RDMA hardware to test: libibverbs shows no device";
        assert_eq!(without.verdict().unwrap_err(), sentence);
        assert!(render(&without).contains("libibverbs shows no device"));
    }
}
