//! Slices that begin and end exactly where mapped memory does: a read outside them, which no guard
//! byte would detect, faults.

use std::ptr;

use recoded_gf::Kernel;

/// A run of mapped pages between two inaccessible ones.
struct Island {
    mapping: *mut libc::c_void,
    page: usize,
    pages: usize,
}

impl Island {
    fn new(pages: usize) -> Self {
        // SAFETY: `sysconf` has no preconditions.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("a size");
        let (length, flags) = ((pages + 2) * page, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping, without access at first, touches nothing that exists.
        let mapping = unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(mapping, libc::MAP_FAILED);
        // SAFETY: the inner pages belong to the mapping made above.
        let opened = unsafe {
            libc::mprotect(mapping.byte_add(page), pages * page, libc::PROT_READ | libc::PROT_WRITE)
        };
        assert_eq!(opened, 0);
        Self { mapping, page, pages }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the inner pages are mapped, readable, writable, zeroed by Linux, and borrowed
        // with `self`.
        unsafe {
            let start = self.mapping.byte_add(self.page).cast();
            std::slice::from_raw_parts_mut(start, self.pages * self.page)
        }
    }
}

impl Drop for Island {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped; no borrow of it outlives `self`.
        unsafe { libc::munmap(self.mapping, (self.pages + 2) * self.page) };
    }
}

/// Runs every operation on slices of each length that touch the end, then the start, of memory.
pub fn check(kernel: &Kernel) {
    let (mut source, mut first, mut second) = (Island::new(1), Island::new(1), Island::new(1));
    let (source, first, second) = (source.bytes(), first.bytes(), second.bytes());
    source.fill(0xA5);
    let end = source.len();
    for bytes in 0..=600 {
        for start in [end - bytes, 0] {
            let source = &source[start..start + bytes];
            let first = &mut first[start..start + bytes];
            let second = &mut second[start..start + bytes];
            kernel.add(first, source);
            kernel.mul(first, 29);
            kernel.madd(first, 29, source);
            kernel.matmul(&[1, 2, 3, 4, 5, 6], &[source, source, source], &mut [first, second]);
            kernel.matmul_accumulate(&[7], &[source], &mut [first]);
            if kernel.field().order() == 256 && bytes >= 8 {
                kernel.dots(source, bytes, first, &mut [0]);
                let (columns, stride) = (&first[bytes % 8..], (bytes / 8).max(1));
                kernel.dots(columns, stride, &source[bytes - bytes / 8..], &mut [0; 8]);
            }
        }
    }
}
