"""What the tests of `orthonorm.distributed` run on several processes: functions that a process can import by name."""
