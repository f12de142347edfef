//! A list of which few elements are ever needed: one for each rank of a world, of which a rank talks to some. An element is made
//! when it is first asked for, and stays where it is.

use std::sync::OnceLock;

/// Elements that lie together.
const CHUNK: usize = 64;

/// The elements made so far of a list.
pub(crate) struct Sparse<T> {
    len: usize,
    chunks: Box<[OnceLock<Chunk<T>>]>,
}

type Chunk<T> = Box<[OnceLock<Box<T>>; CHUNK]>;

impl<T> Sparse<T> {
    /// A list of so many elements, none of which is made.
    pub fn new(len: usize) -> Sparse<T> {
        Sparse { len, chunks: (0..len.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect() }
    }

    /// How many there are, made or not.
    pub fn len(&self) -> usize {
        self.len
    }

    /// An element that has been made.
    pub fn get(&self, at: usize) -> Option<&T> {
        self.chunks.get(at / CHUNK)?.get()?[at % CHUNK].get().map(|element| &**element)
    }

    /// An element of the list, made now if it has not been; none past its end. Of two threads that make it at once one wins.
    ///
    /// # Errors
    /// What `make` says.
    pub fn get_or<E>(
        &self,
        at: usize,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Option<&T>, E> {
        if let Some(element) = self.get(at) {
            return Ok(Some(element));
        }
        let Some(chunk) = self.chunks.get(at / CHUNK).filter(|_| at < self.len) else {
            return Ok(None);
        };
        let made = Box::new(make()?);
        let chunk = chunk.get_or_init(|| Box::new([const { OnceLock::new() }; CHUNK]));
        Ok(Some(chunk[at % CHUNK].get_or_init(|| made)))
    }

    /// The elements that have been made, with their places.
    pub fn made(&self) -> impl Iterator<Item = (usize, &T)> {
        let chunks = self.chunks.iter().enumerate();
        let chunks = chunks.filter_map(|(number, chunk)| Some((number * CHUNK, chunk.get()?)));
        chunks.flat_map(|(first, chunk)| {
            let elements = chunk.iter().enumerate();
            elements.filter_map(move |(number, element)| Some((first + number, &**element.get()?)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_made_once_and_only_where_they_are_asked_for() {
        let list = Sparse::<String>::new(200);
        for at in [199, 3, 64] {
            let made = list.get_or(at, || Ok::<_, ()>(at.to_string())).unwrap().unwrap();
            let again = list.get_or(at, || Err("made twice")).unwrap().unwrap();
            assert!(std::ptr::eq(made, again));
        }
        assert_eq!(list.get_or(200, || Ok::<_, ()>(String::new())), Ok(None));
        assert_eq!(list.get_or(5, || Err("no memory")), Err("no memory"));
        let made: Vec<_> = list.made().map(|(at, text)| (at, text.as_str())).collect();
        assert_eq!(made, [(3, "3"), (64, "64"), (199, "199")]);
        assert_eq!((list.get(3).is_some(), list.get(5), list.get(1 << 40)), (true, None, None));
    }

    #[test]
    fn threads_that_make_an_element_at_once_get_the_same() {
        let list = Sparse::<usize>::new(100);
        let barrier = std::sync::Barrier::new(4);
        let seen: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|number| {
                    let (list, barrier) = (&list, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        *list.get_or(70, || Ok::<_, ()>(number)).unwrap().unwrap()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(seen.iter().all(|number| *number == seen[0]), "{seen:?}");
    }
}
