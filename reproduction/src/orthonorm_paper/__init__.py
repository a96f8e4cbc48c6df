"""The paper reproduced: experiments, their records and reports. Needs the extra `paper`."""
