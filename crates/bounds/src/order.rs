//! In which order ports and classes can be settled: strongly connected components (Tarjan 1972), inputs first.

/// Groups the vertices `0..inputs.len()` into strongly connected components such that whatever a component takes from
/// outside comes before it; `inputs[v]` are the vertices that `v` reads.
pub(crate) fn components(inputs: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let mut search = Search {
        inputs,
        index: vec![0; inputs.len()],
        low: vec![0; inputs.len()],
        on_stack: vec![false; inputs.len()],
        stack: Vec::new(),
        found: Vec::new(),
        next: 1,
    };
    for vertex in 0..inputs.len() {
        if search.index[vertex] == 0 {
            search.visit(vertex);
        }
    }
    search.found
}

struct Search<'a> {
    inputs: &'a [Vec<u32>],
    /// Order of discovery; 0 is "not yet".
    index: Vec<u32>,
    low: Vec<u32>,
    on_stack: Vec<bool>,
    stack: Vec<u32>,
    found: Vec<Vec<u32>>,
    next: u32,
}

impl Search<'_> {
    fn discover(&mut self, vertex: usize) {
        self.index[vertex] = self.next;
        self.low[vertex] = self.next;
        self.next += 1;
        self.stack.push(vertex as u32);
        self.on_stack[vertex] = true;
    }

    /// Depth first, with an explicit stack: a path may be as long as the network.
    fn visit(&mut self, root: usize) {
        let mut calls = vec![(root, 0usize)];
        self.discover(root);
        while let Some((vertex, position)) = calls.last_mut() {
            let vertex = *vertex;
            if let Some(&input) = self.inputs[vertex].get(*position) {
                *position += 1;
                let input = input as usize;
                if self.index[input] == 0 {
                    self.discover(input);
                    calls.push((input, 0));
                } else if self.on_stack[input] {
                    self.low[vertex] = self.low[vertex].min(self.index[input]);
                }
                continue;
            }
            calls.pop();
            if let Some(&(caller, _)) = calls.last() {
                self.low[caller] = self.low[caller].min(self.low[vertex]);
            }
            if self.low[vertex] == self.index[vertex] {
                self.close(vertex);
            }
        }
    }

    fn close(&mut self, vertex: usize) {
        let mut component = Vec::new();
        while let Some(member) = self.stack.pop() {
            self.on_stack[member as usize] = false;
            component.push(member);
            if member as usize == vertex {
                break;
            }
        }
        self.found.push(component);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_come_first_and_cycles_stay_together() {
        // 0 reads 1; 1, 2 and 3 read in a circle; 3 reads 4.
        let found = components(&[vec![1], vec![2], vec![3], vec![1, 4], vec![]]);
        let sorted: Vec<Vec<u32>> = found
            .into_iter()
            .map(|mut component| {
                component.sort_unstable();
                component
            })
            .collect();
        assert_eq!(sorted, [vec![4], vec![1, 2, 3], vec![0]]);
    }

    #[test]
    fn a_path_of_a_million_ports_does_not_overflow_the_stack() {
        let inputs: Vec<Vec<u32>> = (0..1_000_000)
            .map(|v| if v == 0 { vec![] } else { vec![v - 1] })
            .collect();
        let found = components(&inputs);
        assert_eq!((found.len(), found[0][0]), (1_000_000, 0));
    }
}
