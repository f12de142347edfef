//! A rank that is alone: it has nobody to send to, waits for nobody, and a reduction leaves its values as they are.

use gdsync::Device;

use super::{Comm, CommError, Exchange, Group, Message};

/// The only rank of a run, or a rank as far as it solves by itself.
///
/// ```
/// use hpgmg::comm::{Alone, Comm};
///
/// let mut all = Alone.group(&[0])?.unwrap();
/// let mut values = [1.0, 2.0];
/// all.sum(&mut values)?;
/// assert_eq!((Alone.size(), values), (1, [1.0, 2.0]));
/// # Ok::<(), hpgmg::comm::CommError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Comm for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn name(&self) -> &'static str {
        "alone"
    }

    fn prepare_for(
        &self,
        _: &Device,
        tag: i32,
        messages: &[Message],
    ) -> Result<Box<dyn Exchange>, CommError> {
        match messages.first() {
            Some(&Message { peer, .. }) => Err(CommError::Alone { peer, tag }),
            None => Ok(Box::new(Alone)),
        }
    }

    fn group(&self, members: &[usize]) -> Result<Option<Box<dyn Group>>, CommError> {
        Ok(members.contains(&0).then(|| Box::new(Alone) as Box<dyn Group>))
    }
}

/// Of no messages.
impl Exchange for Alone {
    fn begin(&mut self) -> Result<(), CommError> {
        Ok(())
    }

    fn send_buffer(&mut self, _index: usize) -> &mut [f64] {
        &mut []
    }

    fn start(&mut self, _index: usize) -> Result<(), CommError> {
        Ok(())
    }

    fn receive(&mut self, _index: usize) -> Result<&[f64], CommError> {
        Ok(&[])
    }

    fn end(&mut self) -> Result<(), CommError> {
        Ok(())
    }
}

impl Group for Alone {
    fn size(&self) -> usize {
        1
    }

    fn max(&mut self, _values: &mut [f64]) -> Result<(), CommError> {
        Ok(())
    }

    fn sum(&mut self, _values: &mut [f64]) -> Result<(), CommError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_to_another_rank_is_refused_with_its_number() {
        let message = Message { peer: 3, send: 1, receive: 0 };
        let error = Alone.prepare(7, &[message]).err().unwrap().to_string();
        assert!(error.contains("rank 3") && error.contains("tag 7"), "{error}");
    }
}
