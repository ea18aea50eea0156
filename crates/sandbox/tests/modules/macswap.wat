;; Swaps the Ethernet addresses of each frame.
(module
  (memory (export "memory") 1)
  (func (export "nb_abi") (result i32) (i32.const 1))
  (func (export "nb_reads") (result i32) (i32.const 64))
  (func (export "nb_writes") (result i32) (i32.const 1))
  (func (export "nb_setup") (param i32 i32) (result i32) (i32.const 1024))
  (func (export "nb_process") (param $batch i32)
    (local $left i32) (local $packet i32) (local $data i32) (local $low i64)
    (local.set $left (i32.load offset=8 (local.get $batch)))
    (local.set $packet (i32.add (local.get $batch) (i32.const 16)))
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $left)))
        (local.set $data (i32.load (local.get $packet)))
        (if (i32.ge_u (i32.load offset=4 (local.get $packet)) (i32.const 12))
          (then
            (local.set $low (i64.load (local.get $data)))
            ;; The source's six bytes, then the destination's.
            (i32.store (local.get $data) (i32.load offset=6 (local.get $data)))
            (i32.store16 offset=4 (local.get $data) (i32.load16_u offset=10 (local.get $data)))
            (i32.store offset=6 (local.get $data) (i32.wrap_i64 (local.get $low)))
            (i32.store16 offset=10 (local.get $data)
              (i32.wrap_i64 (i64.shr_u (local.get $low) (i64.const 32))))))
        (local.set $packet (i32.add (local.get $packet) (i32.const 12)))
        (local.set $left (i32.sub (local.get $left) (i32.const 1)))
        (br $next)))))
