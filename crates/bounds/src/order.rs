//! In which order ports and classes can be settled: strongly connected components (Tarjan 1972), inputs first.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Lists side by side in one allocation.
#[derive(Debug)]
pub(crate) struct Lists {
    starts: Vec<u32>,
    items: Vec<u32>,
}

impl Lists {
    pub(crate) fn with_capacity(lists: usize, items: usize) -> Self {
        let mut starts = Vec::with_capacity(lists + 1);
        starts.push(0);
        Self {
            starts,
            items: Vec::with_capacity(items),
        }
    }
    /// Adds to the list that is open.
    pub(crate) fn add(&mut self, item: u32) {
        self.items.push(item);
    }
    /// Ends the list that is open and opens the next.
    pub(crate) fn close(&mut self) {
        self.starts.push(self.items.len() as u32);
    }
    pub(crate) fn len(&self) -> usize {
        self.starts.len() - 1
    }
    pub(crate) fn of(&self, list: usize) -> &[u32] {
        &self.items[self.starts[list] as usize..self.starts[list + 1] as usize]
    }
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u32]> {
        (0..self.len()).map(|list| self.of(list))
    }
}

/// Groups the vertices of `inputs` into strongly connected components such that whatever a component takes from
/// outside comes before it; `inputs.of(v)` are the vertices that `v` reads.
pub(crate) fn components(inputs: &Lists) -> Lists {
    let count = inputs.len();
    let mut search = Search {
        inputs,
        index: vec![0; count],
        low: vec![0; count],
        on_stack: vec![false; count],
        stack: Vec::new(),
        calls: Vec::new(),
        found: Lists::with_capacity(count, count),
        next: 1,
    };
    for vertex in 0..count {
        if search.index[vertex] == 0 {
            search.visit(vertex);
        }
    }
    search.found
}

struct Search<'a> {
    inputs: &'a Lists,
    /// Order of discovery; 0 is "not yet".
    index: Vec<u32>,
    low: Vec<u32>,
    on_stack: Vec<bool>,
    stack: Vec<u32>,
    calls: Vec<(usize, usize)>,
    found: Lists,
    next: u32,
}

impl Search<'_> {
    fn discover(&mut self, vertex: usize) {
        self.index[vertex] = self.next;
        self.low[vertex] = self.next;
        self.next += 1;
        self.stack.push(vertex as u32);
        self.on_stack[vertex] = true;
        self.calls.push((vertex, 0));
    }

    /// Depth first, with an explicit stack: a path may be as long as the network.
    fn visit(&mut self, root: usize) {
        self.discover(root);
        while let Some((vertex, position)) = self.calls.last_mut() {
            let vertex = *vertex;
            if let Some(&input) = self.inputs.of(vertex).get(*position) {
                *position += 1;
                let input = input as usize;
                if self.index[input] == 0 {
                    self.discover(input);
                } else if self.on_stack[input] {
                    self.low[vertex] = self.low[vertex].min(self.index[input]);
                }
                continue;
            }
            self.calls.pop();
            if let Some(&(caller, _)) = self.calls.last() {
                self.low[caller] = self.low[caller].min(self.low[vertex]);
            }
            if self.low[vertex] == self.index[vertex] {
                self.finish(vertex);
            }
        }
    }

    fn finish(&mut self, vertex: usize) {
        while let Some(member) = self.stack.pop() {
            self.on_stack[member as usize] = false;
            self.found.add(member);
            if member as usize == vertex {
                break;
            }
        }
        self.found.close();
    }
}

/// Components that wait for others, and those that may be worked on.
#[derive(Debug)]
pub(crate) struct Queue<'a> {
    components: &'a Lists,
    /// The components that read a component; one entry for each input.
    readers: Lists,
    /// Inputs of a component that are not settled yet.
    waiting: Vec<AtomicU32>,
    /// Components in the order in which they became ready; `u32::MAX` is "not yet".
    ready: Vec<AtomicU32>,
    head: AtomicUsize,
    tail: AtomicUsize,
    broken: AtomicBool,
}

impl<'a> Queue<'a> {
    fn new(inputs: &Lists, components: &'a Lists) -> Self {
        let mut component_of = vec![0u32; inputs.len()];
        for (component, members) in components.iter().enumerate() {
            members
                .iter()
                .for_each(|member| component_of[*member as usize] = component as u32);
        }
        let mut waiting = vec![0u32; components.len()];
        let mut lists = vec![Vec::new(); components.len()];
        for (vertex, reads) in inputs.iter().enumerate() {
            let reader = component_of[vertex];
            for input in reads
                .iter()
                .map(|input| component_of[*input as usize])
                .filter(|input| *input != reader)
            {
                lists[input as usize].push(reader);
                waiting[reader as usize] += 1;
            }
        }
        let mut readers = Lists::with_capacity(components.len(), inputs.items.len());
        for list in lists {
            list.into_iter().for_each(|reader| readers.add(reader));
            readers.close();
        }
        let queue = Self {
            components,
            readers,
            waiting: waiting.into_iter().map(AtomicU32::new).collect(),
            ready: (0..components.len()).map(|_| AtomicU32::new(u32::MAX)).collect(),
            head: AtomicUsize::new(0),
            tail: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
        };
        for component in 0..components.len() {
            if queue.waiting[component].load(Ordering::Relaxed) == 0 {
                queue.push(component as u32);
            }
        }
        queue
    }

    fn push(&self, component: u32) {
        let place = self.tail.fetch_add(1, Ordering::Relaxed);
        self.ready[place].store(component, Ordering::Release);
    }

    /// The next component, once there is one.
    fn pop(&self) -> Option<u32> {
        let place = self.head.fetch_add(1, Ordering::Relaxed);
        let slot = self.ready.get(place)?;
        for spins in 0u32.. {
            let component = slot.load(Ordering::Acquire);
            if component != u32::MAX {
                return Some(component);
            }
            if self.broken.load(Ordering::Relaxed) {
                return None;
            }
            if spins < 100 {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        None
    }

    /// Works on components as they become ready, until there are none.
    pub(crate) fn each(&self, mut settle: impl FnMut(&[u32])) {
        // Others wait for what a thread that panics will not finish.
        let guard = Guard(self);
        while let Some(component) = self.pop() {
            settle(self.components.of(component as usize));
            for reader in self.readers.of(component as usize) {
                if self.waiting[*reader as usize].fetch_sub(1, Ordering::AcqRel) == 1 {
                    self.push(*reader);
                }
            }
        }
        std::mem::forget(guard);
    }
}

struct Guard<'a, 'b>(&'a Queue<'b>);

impl Drop for Guard<'_, '_> {
    fn drop(&mut self) {
        self.0.broken.store(true, Ordering::Relaxed);
    }
}

/// Settles all components, each after what it reads, on several threads; `work` runs once on each.
pub(crate) fn in_parallel(
    inputs: &Lists,
    components: &Lists,
    threads: usize,
    work: impl Fn(&Queue<'_>) + Sync,
) {
    let queue = Queue::new(inputs, components);
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| work(&queue));
        }
        work(&queue);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn lists(all: &[&[u32]]) -> Lists {
        let mut lists = Lists::with_capacity(all.len(), 0);
        for list in all {
            list.iter().for_each(|item| lists.add(*item));
            lists.close();
        }
        lists
    }

    #[test]
    fn inputs_come_first_and_cycles_stay_together() {
        // 0 reads 1; 1, 2 and 3 read in a circle; 3 reads 4.
        let found = components(&lists(&[&[1], &[2], &[3], &[1, 4], &[]]));
        let sorted: Vec<Vec<u32>> = found
            .iter()
            .map(|component| {
                let mut component = component.to_vec();
                component.sort_unstable();
                component
            })
            .collect();
        assert_eq!(sorted, [vec![4], vec![1, 2, 3], vec![0]]);
    }

    #[test]
    fn a_path_of_a_million_ports_does_not_overflow_the_stack() {
        let mut inputs = Lists::with_capacity(1_000_000, 1_000_000);
        for vertex in 0..1_000_000u32 {
            if vertex > 0 {
                inputs.add(vertex - 1);
            }
            inputs.close();
        }
        let found = components(&inputs);
        assert_eq!((found.len(), found.of(0)[0]), (1_000_000, 0));
    }

    #[test]
    fn threads_settle_every_component_after_its_inputs() {
        let mut inputs = Lists::with_capacity(3_000, 9_000);
        for vertex in 0..3_000u32 {
            (1..=3)
                .filter(|back| vertex >= back * 7)
                .for_each(|back| inputs.add(vertex - back * 7));
            inputs.close();
        }
        let components = components(&inputs);
        let done = Mutex::new(vec![false; 3_000]);
        in_parallel(&inputs, &components, 4, |queue| {
            queue.each(|component| {
                let mut done = done.lock().expect("no panic");
                for member in component {
                    assert!(
                        inputs
                            .of(*member as usize)
                            .iter()
                            .all(|input| done[*input as usize])
                    );
                    done[*member as usize] = true;
                }
            });
        });
        assert!(done.into_inner().expect("no panic").into_iter().all(|done| done));
    }

    #[test]
    fn a_panic_in_one_thread_ends_the_others() {
        let inputs = lists(&[&[], &[0], &[1]]);
        let components = components(&inputs);
        let outcome = std::panic::catch_unwind(|| {
            in_parallel(&inputs, &components, 3, |queue| {
                queue.each(|_| panic!("on purpose"))
            });
        });
        assert!(outcome.is_err());
    }
}
